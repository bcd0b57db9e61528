"""What the threads of tasks read from and write to storage."""
