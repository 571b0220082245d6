\set w random(1, :warehouses)
SELECT delivery(:w);
