"""Charts and the page of a pipeline plan."""
