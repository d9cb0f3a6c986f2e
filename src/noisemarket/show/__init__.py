"""Figures and tables out of results and run folders."""
