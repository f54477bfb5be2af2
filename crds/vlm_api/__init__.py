"""The words that the operator and the runtime share: the API's types, the plan, the runtime's report, names and labels."""
