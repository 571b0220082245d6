\set w random(1, :warehouses)
SELECT order_status(:w, :customers);
