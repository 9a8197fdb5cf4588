"""Charts, tables and the page frame. Nothing here knows a level."""
