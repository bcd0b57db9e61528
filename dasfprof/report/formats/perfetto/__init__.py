"""Perfetto's own format: protocol buffers, which it opens and searches sooner than JSON."""
