"""Connected clients: who produces, and closing the connections of one."""
