"""Many runs in one call: axes, groups, plan, store, execution, labelled results."""
