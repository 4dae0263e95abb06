"""Running steps on one machine: resources, host kernels, prepared steps, the local master."""
