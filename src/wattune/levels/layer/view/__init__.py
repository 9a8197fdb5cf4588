"""Charts and the page of layer plans."""
