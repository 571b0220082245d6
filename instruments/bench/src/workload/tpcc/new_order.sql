\set w random(1, :warehouses)
SELECT new_order(:w, :warehouses, :customers, :items);
