"""What each SGLang version knows: flags, variables, renames and faults; and what the user decided, checked against it."""
