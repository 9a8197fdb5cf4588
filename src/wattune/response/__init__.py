"""How a workload answers to clocks and power limits: ensembles of curves, weighted by measurements."""
