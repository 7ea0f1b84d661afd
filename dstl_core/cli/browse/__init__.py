"""``dstl browse``: a snapshot in the terminal."""
