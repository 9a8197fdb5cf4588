"""How wattune behaves when things go wrong: kills, signals, slow drivers and stores."""
