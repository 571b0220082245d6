\set w random(1, :warehouses)
SELECT stock_level(:w);
