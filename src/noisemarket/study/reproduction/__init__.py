"""The paper's convergence figures again, over many seeds, and its claims checked one by one."""
