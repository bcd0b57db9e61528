"""What records work that has begun and not ended, in a thread of each process.

So a file is true at any moment: it tells what its process was doing when it was killed.
"""
