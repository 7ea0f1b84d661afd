"""Values as PyFlink stores them: pickles, and the coders of its types. No class is ever loaded."""
