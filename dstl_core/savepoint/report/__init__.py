"""One page about a snapshot: sizes, skew, what resumes where, and what needs attention."""
