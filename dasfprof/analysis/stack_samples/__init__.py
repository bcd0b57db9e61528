"""What samples of stacks say: whose they are, which lines they name, how their time was spent."""
