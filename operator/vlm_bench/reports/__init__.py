"""Reports for the terminal and as HTML pages, and plots."""
