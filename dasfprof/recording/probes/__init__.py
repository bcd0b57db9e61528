"""Probes of the resource monitor: processes, hosts, disks and GPUs."""
