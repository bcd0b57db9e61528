"""The page's charts of CPU, memory, network, disks and GPUs."""
