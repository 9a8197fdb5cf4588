"""The page of searched partitions, and the settings of partitions in a plan."""
