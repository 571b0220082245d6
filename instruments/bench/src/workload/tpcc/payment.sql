\set w random(1, :warehouses)
SELECT payment(:w, :warehouses, :customers);
