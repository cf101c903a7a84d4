"""Many runs in one call: groups, plan, store, execution, labelled results."""
