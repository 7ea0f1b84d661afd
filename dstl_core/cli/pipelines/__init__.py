"""Commands about pipelines of dstl."""
