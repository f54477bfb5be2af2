"""What each SGLang release knows and does: flags, variables, facts, faults; and which one a service gets."""
