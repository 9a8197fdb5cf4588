"""Time and energy of a GPU as pure functions of its model and its workload."""
