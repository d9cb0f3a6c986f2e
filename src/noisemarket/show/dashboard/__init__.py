"""The market in a browser: a local server that reads run folders and starts runs."""
