"""Snapshots of work in progress, which a thread of each process writes about once per second.

If a process is killed, its file therefore shows what the process was doing at that time.
"""
