"""Response of workloads to clocks and power limits: ensembles of curves, weighted by measurements."""
