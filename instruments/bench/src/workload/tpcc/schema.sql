-- The tables of TPC-C (clause 1.2). :warehouses, :items, :customers and :orders are numbers.
CREATE TABLE warehouse (
    w_id int, w_name varchar(10), w_street_1 varchar(20), w_street_2 varchar(20), w_city varchar(20),
    w_state char(2), w_zip char(9), w_tax numeric(4,4), w_ytd numeric(12,2));
CREATE TABLE district (
    d_id int, d_w_id int, d_name varchar(10), d_street_1 varchar(20), d_street_2 varchar(20),
    d_city varchar(20), d_state char(2), d_zip char(9), d_tax numeric(4,4), d_ytd numeric(12,2),
    d_next_o_id int);
CREATE TABLE customer (
    c_id int, c_d_id int, c_w_id int, c_first varchar(16), c_middle char(2), c_last varchar(16),
    c_street_1 varchar(20), c_street_2 varchar(20), c_city varchar(20), c_state char(2), c_zip char(9),
    c_phone char(16), c_since timestamp, c_credit char(2), c_credit_lim numeric(12,2),
    c_discount numeric(4,4), c_balance numeric(12,2), c_ytd_payment numeric(12,2), c_payment_cnt int,
    c_delivery_cnt int, c_data varchar(500));
CREATE TABLE history (
    h_c_id int, h_c_d_id int, h_c_w_id int, h_d_id int, h_w_id int, h_date timestamp,
    h_amount numeric(6,2), h_data varchar(24));
CREATE TABLE new_order (no_o_id int, no_d_id int, no_w_id int);
CREATE TABLE orders (
    o_id int, o_d_id int, o_w_id int, o_c_id int, o_entry_d timestamp, o_carrier_id int, o_ol_cnt int,
    o_all_local int);
CREATE TABLE order_line (
    ol_o_id int, ol_d_id int, ol_w_id int, ol_number int, ol_i_id int, ol_supply_w_id int,
    ol_delivery_d timestamp, ol_quantity int, ol_amount numeric(6,2), ol_dist_info char(24));
CREATE TABLE item (i_id int, i_im_id int, i_name varchar(24), i_price numeric(5,2), i_data varchar(50));
CREATE TABLE stock (
    s_i_id int, s_w_id int, s_quantity int, s_dist char(24)[10], s_ytd int, s_order_cnt int,
    s_remote_cnt int, s_data varchar(50));

SELECT setseed(0.5);
INSERT INTO item
    SELECT i, 1 + i % 10000, 'item ' || i, 1 + i % 100, md5(i::text)
    FROM generate_series(1, :items) i;
INSERT INTO warehouse
    SELECT w, 'w' || w, 'street', 'street', 'city', 'st', '123411111', 0.1, 30000.00 * 10
    FROM generate_series(1, :warehouses) w;
INSERT INTO district
    SELECT d, w, 'd' || d, 'street', 'street', 'city', 'st', '123411111', 0.1, 30000.00, :orders + 1
    FROM generate_series(1, :warehouses) w, generate_series(1, 10) d;
INSERT INTO stock
    SELECT i, w, 10 + (random() * 90)::int, array_fill(left(md5(i::text), 24), ARRAY[10]), 0, 0, 0,
        md5(w::text || i)
    FROM generate_series(1, :warehouses) w, generate_series(1, :items) i;
INSERT INTO customer
    SELECT c, d, w, 'first' || c, 'OE', 'last' || c % 100, 'street', 'street', 'city', 'st',
        '123411111', '0123456789012345', now(), CASE WHEN c % 10 = 0 THEN 'BC' ELSE 'GC' END,
        50000.00, 0.1, -10.00, 10.00, 1, 0, repeat(md5(c::text || w), 12)
    FROM generate_series(1, :warehouses) w, generate_series(1, 10) d, generate_series(1, :customers) c;
INSERT INTO history
    SELECT c, d, w, d, w, now(), 10.00, 'history'
    FROM generate_series(1, :warehouses) w, generate_series(1, 10) d, generate_series(1, :customers) c;
-- Of the orders of a district the last three tenths are new (clause 4.3.3.1).
INSERT INTO orders
    SELECT o, d, w, 1 + (o * 7919) % :customers, now(),
        CASE WHEN o <= :orders * 7 / 10 THEN 1 + o % 10 END, 5 + (o * 31) % 11, 1
    FROM generate_series(1, :warehouses) w, generate_series(1, 10) d, generate_series(1, :orders) o;
INSERT INTO new_order
    SELECT o_id, o_d_id, o_w_id FROM orders WHERE o_carrier_id IS NULL;
INSERT INTO order_line
    SELECT o_id, o_d_id, o_w_id, n, 1 + (o_id * 13 + n * 101) % :items, o_w_id,
        CASE WHEN o_carrier_id IS NOT NULL THEN now() END, 5, 0.00, left(md5(n::text), 24)
    FROM orders, generate_series(1, 15) n WHERE n <= o_ol_cnt;

ALTER TABLE item ADD PRIMARY KEY (i_id);
ALTER TABLE warehouse ADD PRIMARY KEY (w_id);
ALTER TABLE district ADD PRIMARY KEY (d_w_id, d_id);
ALTER TABLE customer ADD PRIMARY KEY (c_w_id, c_d_id, c_id);
ALTER TABLE stock ADD PRIMARY KEY (s_w_id, s_i_id);
ALTER TABLE orders ADD PRIMARY KEY (o_w_id, o_d_id, o_id);
ALTER TABLE new_order ADD PRIMARY KEY (no_w_id, no_d_id, no_o_id);
ALTER TABLE order_line ADD PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number);
CREATE INDEX ON customer (c_w_id, c_d_id, c_last, c_first);
CREATE INDEX ON orders (o_w_id, o_d_id, o_c_id, o_id);

-- NURand (clause 2.1.6).
CREATE FUNCTION nurand(a int, x int, y int) RETURNS int LANGUAGE sql AS $$
    SELECT ((floor(random() * (a + 1))::int | (x + floor(random() * (y - x + 1))::int)) + a / 2)
        % (y - x + 1) + x
$$;

-- A customer, by number or, six times in ten, by last name (clause 2.5.1.2).
CREATE FUNCTION some_customer(w int, d int, customers int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    named int[];
BEGIN
    IF random() < 0.6 THEN
        SELECT array_agg(c_id ORDER BY c_first) INTO named FROM customer
            WHERE c_w_id = w AND c_d_id = d AND c_last = 'last' || nurand(255, 0, 999) % 100;
    END IF;
    RETURN coalesce(named[(cardinality(named) + 1) / 2], nurand(1023, 1, customers));
END $$;

-- Clause 2.4. One in a hundred names an item that is not there and is rolled back. Items are taken in
-- order, so that two orders do not wait for each other.
CREATE FUNCTION new_order(w int, warehouses int, customers int, items int) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    d int := 1 + floor(random() * 10);
    c int := nurand(1023, 1, customers);
    lines int := 5 + floor(random() * 11);
    missing boolean := random() < 0.01;
    o int;
    i int;
    number int := 0;
    supplier int;
    quantity int;
    price numeric;
    info char(24);
BEGIN
    PERFORM w_tax FROM warehouse WHERE w_id = w;
    PERFORM c_discount, c_last, c_credit FROM customer WHERE c_w_id = w AND c_d_id = d AND c_id = c;
    UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = w AND d_id = d
        RETURNING d_next_o_id - 1 INTO o;
    INSERT INTO orders VALUES (o, d, w, c, now(), NULL, lines, 1);
    INSERT INTO new_order VALUES (o, d, w);
    FOR i IN SELECT nurand(8191, 1, items) AS chosen FROM generate_series(1, lines) ORDER BY chosen LOOP
        number := number + 1;
        quantity := 1 + floor(random() * 10);
        supplier := CASE WHEN random() < 0.01 THEN 1 + floor(random() * warehouses) ELSE w END;
        IF missing AND number = lines THEN
            RAISE EXCEPTION 'item number is not valid';
        END IF;
        SELECT i_price INTO price FROM item WHERE i_id = i;
        UPDATE stock SET
            s_quantity = CASE WHEN s_quantity >= quantity + 10 THEN s_quantity - quantity
                ELSE s_quantity - quantity + 91 END,
            s_ytd = s_ytd + quantity, s_order_cnt = s_order_cnt + 1,
            s_remote_cnt = s_remote_cnt + (supplier <> w)::int
            WHERE s_w_id = supplier AND s_i_id = i RETURNING s_dist[d] INTO info;
        INSERT INTO order_line VALUES (o, d, w, number, i, supplier, NULL, quantity,
            least(quantity * price, 9999.99), info);
    END LOOP;
    RETURN true;
EXCEPTION WHEN raise_exception THEN
    RETURN false;
END $$;

-- Clause 2.5: fifteen in a hundred by a customer of another warehouse.
CREATE FUNCTION payment(w int, warehouses int, customers int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    d int := 1 + floor(random() * 10);
    c_w int := CASE WHEN random() < 0.15 THEN 1 + floor(random() * warehouses) ELSE w END;
    c_d int := CASE WHEN c_w = w THEN d ELSE 1 + floor(random() * 10) END;
    amount numeric := 1 + floor(random() * 4999);
    c int := some_customer(c_w, c_d, customers);
BEGIN
    UPDATE customer SET c_balance = c_balance - amount, c_ytd_payment = c_ytd_payment + amount,
        c_payment_cnt = c_payment_cnt + 1,
        c_data = CASE WHEN c_credit = 'BC'
            THEN left(concat_ws(' ', c, c_d, c_w, d, w, amount, c_data), 500) ELSE c_data END
        WHERE c_w_id = c_w AND c_d_id = c_d AND c_id = c;
    UPDATE district SET d_ytd = d_ytd + amount WHERE d_w_id = w AND d_id = d;
    UPDATE warehouse SET w_ytd = w_ytd + amount WHERE w_id = w;
    INSERT INTO history VALUES (c, c_d, c_w, d, w, now(), amount, 'payment');
END $$;

-- Clause 2.6.
CREATE FUNCTION order_status(w int, customers int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    d int := 1 + floor(random() * 10);
    c int := some_customer(w, d, customers);
    o int;
BEGIN
    PERFORM c_balance FROM customer WHERE c_w_id = w AND c_d_id = d AND c_id = c;
    SELECT max(o_id) INTO o FROM orders WHERE o_w_id = w AND o_d_id = d AND o_c_id = c;
    PERFORM * FROM order_line WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = o;
END $$;

-- Clause 2.7: the oldest new order of each district. Whoever finds that another delivery has just taken it
-- passes the district over: a younger one in its place would leave a gap.
CREATE FUNCTION delivery(w int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    d int;
    o int;
    c int;
    total numeric;
BEGIN
    FOR d IN 1..10 LOOP
        SELECT no_o_id INTO o FROM new_order WHERE no_w_id = w AND no_d_id = d
            ORDER BY no_o_id LIMIT 1 FOR UPDATE;
        CONTINUE WHEN o IS NULL;
        DELETE FROM new_order WHERE no_w_id = w AND no_d_id = d AND no_o_id = o;
        UPDATE orders SET o_carrier_id = 1 + floor(random() * 10)
            WHERE o_w_id = w AND o_d_id = d AND o_id = o RETURNING o_c_id INTO c;
        UPDATE order_line SET ol_delivery_d = now()
            WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = o;
        SELECT sum(ol_amount) INTO total FROM order_line
            WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = o;
        UPDATE customer SET c_balance = c_balance + total, c_delivery_cnt = c_delivery_cnt + 1
            WHERE c_w_id = w AND c_d_id = d AND c_id = c;
    END LOOP;
END $$;

-- Clause 2.8: of the last twenty orders of a district.
CREATE FUNCTION stock_level(w int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    d int := 1 + floor(random() * 10);
    threshold int := 10 + floor(random() * 11);
    next int := (SELECT d_next_o_id FROM district WHERE d_w_id = w AND d_id = d);
BEGIN
    RETURN (SELECT count(DISTINCT s_i_id) FROM order_line, stock
        WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id >= next - 20 AND ol_o_id < next
            AND s_w_id = w AND s_i_id = ol_i_id AND s_quantity < threshold);
END $$;

VACUUM ANALYZE;
