"""The words that operator and runtime share: the API's types, the plan, the runtime's report, names and labels."""
