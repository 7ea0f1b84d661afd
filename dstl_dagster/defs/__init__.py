"""Where ``dg`` looks for definitions of its own; dstl has none here."""
