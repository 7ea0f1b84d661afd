"""Classes of a job as its jar describes them. No class is loaded, and no Java runs."""
