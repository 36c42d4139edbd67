"""Commands that compare: compare, bench, reproduce."""
