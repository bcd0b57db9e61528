"""What the resource monitor reads: processes, hosts, disks, GPUs."""
