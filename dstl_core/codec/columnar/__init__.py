"""The same decoders over columns: Arrow in, Arrow out, compiled."""
