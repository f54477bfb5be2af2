"""From a request and facts to a ServingPlan. Pure: no clock, no network."""
