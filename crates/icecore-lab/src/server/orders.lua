-- A workload like TPC-C for sysbench(1), on MariaDB and PostgreSQL: the schema, the skew of the random numbers and
-- the mix of the five transactions follow the specification (TPC Benchmark C, revision 5.11). There is no think time
-- and no terminal, so its results are not comparable with results of TPC-C.

sysbench.cmdline.options = {
  warehouses = {"Warehouses, each about 100 MB", 1},
  items = {"Items, and so rows of stock of a warehouse", 100000},
  customers = {"Customers of a district, and its first orders", 3000},
}

local DISTRICTS = 10
-- Of the random numbers of last names: one when the tables are filled, the other when they are used.
local LOAD_C, RUN_C = 157, 223
local NAME_C = LOAD_C
local NO_ITEM = 0

local function uniform(low, high)
  return sysbench.rand.uniform(low, high)
end

local function letters(low, high)
  return sysbench.rand.string(string.rep("@", uniform(low, high)))
end

local function digits(count)
  return sysbench.rand.string(string.rep("#", count))
end

-- The largest number of the form 2^k - 1 that is not above the limit.
local function mask(limit)
  local found = 1
  while 2 * found + 1 <= limit do
    found = 2 * found + 1
  end
  return found
end

-- Not uniform: clause 2.1.6.
local function skewed(a, c, low, high)
  return (bit.bor(uniform(0, a), uniform(low, high)) + c) % (high - low + 1) + low
end

local function any_customer()
  return skewed(mask(sysbench.opt.customers / 2), 259, 1, sysbench.opt.customers)
end

local function any_item()
  return skewed(mask(sysbench.opt.items / 12), 7911, 1, sysbench.opt.items)
end

local SYLLABLES = {"BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"}

local function last_name(number)
  local at = function(place) return SYLLABLES[math.floor(number / place) % 10 + 1] end
  return at(100) .. at(10) .. at(1)
end

local function any_last_name()
  local names = math.min(1000, sysbench.opt.customers)
  return last_name(skewed(mask(names / 3), NAME_C, 0, names - 1))
end

local TABLES = {
  [[create table warehouse (w_id int not null, w_name varchar(10), w_street varchar(40), w_city varchar(20),
    w_state char(2), w_zip char(9), w_tax decimal(4,4), w_ytd decimal(14,2), primary key (w_id))]],
  [[create table district (d_w_id int not null, d_id int not null, d_name varchar(10), d_street varchar(40),
    d_city varchar(20), d_state char(2), d_zip char(9), d_tax decimal(4,4), d_ytd decimal(14,2), d_next_o_id int,
    primary key (d_w_id, d_id))]],
  [[create table customer (c_w_id int not null, c_d_id int not null, c_id int not null, c_first varchar(16),
    c_middle char(2), c_last varchar(16), c_street varchar(40), c_city varchar(20), c_state char(2), c_zip char(9),
    c_phone char(16), c_since timestamp null, c_credit char(2), c_credit_lim decimal(12,2), c_discount decimal(4,4),
    c_balance decimal(14,2), c_ytd_payment decimal(14,2), c_payment_cnt int, c_delivery_cnt int, c_data varchar(500),
    primary key (c_w_id, c_d_id, c_id))]],
  [[create table history (h_c_id int, h_c_d_id int, h_c_w_id int, h_d_id int, h_w_id int, h_date timestamp null,
    h_amount decimal(8,2), h_data varchar(24))]],
  [[create table new_order (no_w_id int not null, no_d_id int not null, no_o_id int not null,
    primary key (no_w_id, no_d_id, no_o_id))]],
  [[create table orders (o_w_id int not null, o_d_id int not null, o_id int not null, o_c_id int,
    o_entry_d timestamp null, o_carrier_id int, o_ol_cnt int, o_all_local int, primary key (o_w_id, o_d_id, o_id))]],
  [[create table order_line (ol_w_id int not null, ol_d_id int not null, ol_o_id int not null, ol_number int not null,
    ol_i_id int, ol_supply_w_id int, ol_delivery_d timestamp null, ol_quantity int, ol_amount decimal(8,2),
    ol_dist_info char(24), primary key (ol_w_id, ol_d_id, ol_o_id, ol_number))]],
  [[create table item (i_id int not null, i_im_id int, i_name varchar(24), i_price decimal(6,2), i_data varchar(50),
    primary key (i_id))]],
  [[create table stock (s_w_id int not null, s_i_id int not null, s_quantity int, s_dist char(24), s_ytd int,
    s_order_cnt int, s_remote_cnt int, s_data varchar(250), primary key (s_w_id, s_i_id))]],
}
local INDEXES = {
  "create index customer_name on customer (c_w_id, c_d_id, c_last, c_first)",
  "create index orders_customer on orders (o_w_id, o_d_id, o_c_id, o_id)",
}

-- Fills a table with rows that `each` passes on.
local function fill(con, into, each)
  con:bulk_insert_init("insert into " .. into .. " values")
  each(function(format, ...) con:bulk_insert_next(string.format(format, ...)) end)
  con:bulk_insert_done()
end

local function fill_items(con)
  fill(con, "item", function(add)
    for item = 1, sysbench.opt.items do
      local price = uniform(100, 10000) / 100
      add("(%d,%d,'%s',%.2f,'%s')", item, uniform(1, 10000), letters(14, 24), price, letters(26, 50))
    end
  end)
end

local function fill_customers(con, w, d)
  fill(con, "customer", function(add)
    for c = 1, sysbench.opt.customers do
      local name = c <= 1000 and last_name(c - 1) or any_last_name()
      local credit = uniform(1, 10) == 1 and "BC" or "GC"
      add("(%d,%d,%d,'%s','OE','%s','%s','%s','%s','%s','%s',now(),'%s',50000,%.4f,-10,10,1,0,'%s')",
        w, d, c, letters(8, 16), name, letters(20, 40), letters(10, 20), letters(2, 2), digits(9), digits(16), credit,
        uniform(0, 5000) / 10000, letters(300, 500))
    end
  end)
  fill(con, "history", function(add)
    for c = 1, sysbench.opt.customers do
      add("(%d,%d,%d,%d,%d,now(),10,'%s')", c, d, w, d, w, letters(12, 24))
    end
  end)
end

-- Each customer has one order, and the last three of ten orders are not delivered.
local function fill_orders(con, w, d)
  local customers, lines, delivered = {}, {}, math.floor(sysbench.opt.customers * 0.7)
  for o = 1, sysbench.opt.customers do
    local place = uniform(1, o)
    customers[o] = customers[place]
    customers[place] = o
    lines[o] = uniform(5, 15)
  end
  fill(con, "orders", function(add)
    for o = 1, sysbench.opt.customers do
      local carrier = o <= delivered and tostring(uniform(1, 10)) or "null"
      add("(%d,%d,%d,%d,now(),%s,%d,1)", w, d, o, customers[o], carrier, lines[o])
    end
  end)
  fill(con, "order_line", function(add)
    for o = 1, sysbench.opt.customers do
      for number = 1, lines[o] do
        local when, amount = "now()", 0
        if o > delivered then
          when, amount = "null", uniform(1, 999999) / 100
        end
        local item, district = uniform(1, sysbench.opt.items), letters(24, 24)
        add("(%d,%d,%d,%d,%d,%d,%s,5,%.2f,'%s')", w, d, o, number, item, w, when, amount, district)
      end
    end
  end)
  fill(con, "new_order", function(add)
    for o = delivered + 1, sysbench.opt.customers do
      add("(%d,%d,%d)", w, d, o)
    end
  end)
end

local function fill_warehouse(con, w)
  local ytd = sysbench.opt.customers * 10
  fill(con, "stock", function(add)
    for item = 1, sysbench.opt.items do
      add("(%d,%d,%d,'%s',0,0,0,'%s')", w, item, uniform(10, 100), letters(24, 24), letters(200, 250))
    end
  end)
  fill(con, "district", function(add)
    for d = 1, DISTRICTS do
      add("(%d,%d,'%s','%s','%s','%s','%s',%.4f,%d,%d)", w, d, letters(6, 10), letters(20, 40), letters(10, 20),
        letters(2, 2), digits(9), uniform(0, 2000) / 10000, ytd, sysbench.opt.customers + 1)
    end
  end)
  for d = 1, DISTRICTS do
    fill_customers(con, w, d)
    fill_orders(con, w, d)
  end
  fill(con, "warehouse", function(add)
    add("(%d,'%s','%s','%s','%s','%s',%.4f,%d)", w, letters(6, 10), letters(20, 40), letters(10, 20), letters(2, 2),
      digits(9), uniform(0, 2000) / 10000, ytd * DISTRICTS)
  end)
end

local function cmd_prepare()
  local con = sysbench.sql.driver():connect()
  for _, statement in ipairs(TABLES) do
    con:query(statement)
  end
  fill_items(con)
  for w = 1, sysbench.opt.warehouses do
    print("warehouse " .. w .. " of " .. sysbench.opt.warehouses)
    fill_warehouse(con, w)
  end
  for _, statement in ipairs(INDEXES) do
    con:query(statement)
  end
end

-- Conditions of clause 3.3.2: each counts what breaks it. No rows are a sum of 0, and not NULL, to which
-- nothing compares. `history` has no index, so it is read once for all warehouses or districts.
local CONDITIONS = {
  {"1: w_ytd is the sum of d_ytd", [[select count(*) from warehouse w where w_ytd <>
    (select coalesce(sum(d_ytd), 0) from district where d_w_id = w_id)]]},
  {"2: d_next_o_id follows the last order", [[select count(*) from district d where d_next_o_id - 1 <>
    (select coalesce(max(o_id), 0) from orders where o_w_id = d_w_id and o_d_id = d_id)]]},
  {"3: new orders have no gap", [[select count(*) from (select max(no_o_id) - min(no_o_id) + 1 - count(*) as gap
    from new_order group by no_w_id, no_d_id) as gaps where gap <> 0]]},
  {"4: lines of a district are those of its orders", [[select count(*) from district d where
    (select coalesce(sum(o_ol_cnt), 0) from orders where o_w_id = d_w_id and o_d_id = d_id) <>
    (select count(*) from order_line where ol_w_id = d_w_id and ol_d_id = d_id)]]},
  {"5: an order without a carrier is new", [[select count(*) from orders left join new_order
    on no_w_id = o_w_id and no_d_id = o_d_id and no_o_id = o_id
    where (o_carrier_id is null) <> (no_o_id is not null)]]},
  {"6: an order has its lines", [[select count(*) from orders where o_ol_cnt <> (select count(*) from order_line
    where ol_w_id = o_w_id and ol_d_id = o_d_id and ol_o_id = o_id)]]},
  {"7: a line is delivered with its order", [[select count(*) from orders where 0 <> (select count(*)
    from order_line where ol_w_id = o_w_id and ol_d_id = o_d_id and ol_o_id = o_id
    and (ol_delivery_d is null) <> (o_carrier_id is null))]]},
  {"8: w_ytd is the sum of its history", [[select count(*) from warehouse left join
    (select h_w_id, sum(h_amount) as paid from history group by h_w_id) as sums
    on h_w_id = w_id where w_ytd <> coalesce(paid, 0)]]},
  {"9: d_ytd is the sum of its history", [[select count(*) from district left join
    (select h_w_id, h_d_id, sum(h_amount) as paid from history group by h_w_id, h_d_id) as sums
    on h_w_id = d_w_id and h_d_id = d_id where d_ytd <> coalesce(paid, 0)]]},
}

local function cmd_check()
  local con = sysbench.sql.driver():connect()
  local broken = 0
  if tonumber(con:query_row("select count(*) from warehouse")) ~= sysbench.opt.warehouses then
    error("a warehouse is missing")
  end
  for _, condition in ipairs(CONDITIONS) do
    local count = tonumber(con:query_row(condition[2]))
    if count ~= 0 then
      print("condition " .. condition[1] .. ": broken " .. count .. " times")
      broken = broken + 1
    end
  end
  if broken > 0 then
    error("the database is not consistent")
  end
  print(#CONDITIONS .. " conditions hold")
end

local function cmd_count()
  local con = sysbench.sql.driver():connect()
  print("orders: " .. con:query_row("select sum(d_next_o_id) from district"))
end

sysbench.cmdline.commands = {prepare = {cmd_prepare}, check = {cmd_check}, count = {cmd_count}}

local con

function thread_init()
  NAME_C = RUN_C
  con = sysbench.sql.driver():connect()
end

function thread_done()
  con:disconnect()
end

local function ask(format, ...)
  return con:query_row(string.format(format, ...))
end

local function run(format, ...)
  con:query(string.format(format, ...))
end

local function another_warehouse(w)
  local other = uniform(1, sysbench.opt.warehouses - 1)
  return other < w and other or other + 1
end

-- The one in the middle of the customers of a last name, by the first.
local function customer_by_name(w, d)
  local found = con:query(string.format(
    "select c_id from customer where c_w_id = %d and c_d_id = %d and c_last = '%s' order by c_first",
    w, d, any_last_name()))
  local customer
  for place = 1, found.nrows do
    local row = found:fetch_row()
    if place == math.ceil(found.nrows / 2) then
      customer = tonumber(row[1])
    end
  end
  return customer or any_customer()
end

local function some_customer(w, d)
  return uniform(1, 100) <= 60 and customer_by_name(w, d) or any_customer()
end

local function new_order_line(w, d, o, number, line)
  local price = ask("select i_price from item where i_id = %d", line.item)
  if price == nil then
    return false
  end
  local quantity, district = ask("select s_quantity, s_dist from stock where s_w_id = %d and s_i_id = %d for update",
    line.supply, line.item)
  quantity = tonumber(quantity) - line.quantity
  if quantity < 10 then
    quantity = quantity + 91
  end
  run("update stock set s_quantity = %d, s_ytd = s_ytd + %d, s_order_cnt = s_order_cnt + 1, " ..
    "s_remote_cnt = s_remote_cnt + %d where s_w_id = %d and s_i_id = %d",
    quantity, line.quantity, line.supply == w and 0 or 1, line.supply, line.item)
  run("insert into order_line values (%d,%d,%d,%d,%d,%d,null,%d,%.2f,'%s')",
    w, d, o, number, line.item, line.supply, line.quantity, line.quantity * tonumber(price), district)
  return true
end

local function new_order()
  local w, d, c = uniform(1, sysbench.opt.warehouses), uniform(1, DISTRICTS), any_customer()
  local lines, all_local = {}, 1
  for number = 1, uniform(5, 15) do
    local line = {item = any_item(), supply = w, quantity = uniform(1, 10)}
    if sysbench.opt.warehouses > 1 and uniform(1, 100) == 1 then
      line.supply, all_local = another_warehouse(w), 0
    end
    lines[number] = line
  end
  -- In one order for all: fewer deadlocks.
  table.sort(lines, function(one, other) return one.item < other.item end)
  if uniform(1, 100) == 1 then
    lines[#lines].item = NO_ITEM
  end
  con:query("begin")
  ask("select w_tax from warehouse where w_id = %d", w)
  local o = tonumber((ask("select d_next_o_id from district where d_w_id = %d and d_id = %d for update", w, d)))
  run("update district set d_next_o_id = %d where d_w_id = %d and d_id = %d", o + 1, w, d)
  ask("select c_discount from customer where c_w_id = %d and c_d_id = %d and c_id = %d", w, d, c)
  run("insert into orders values (%d,%d,%d,%d,now(),null,%d,%d)", w, d, o, c, #lines, all_local)
  run("insert into new_order values (%d,%d,%d)", w, d, o)
  for number, line in ipairs(lines) do
    if not new_order_line(w, d, o, number, line) then
      con:query("rollback")
      return
    end
  end
  con:query("commit")
end

local function payment()
  local w, d, amount = uniform(1, sysbench.opt.warehouses), uniform(1, DISTRICTS), uniform(100, 500000) / 100
  local c_w, c_d = w, d
  if sysbench.opt.warehouses > 1 and uniform(1, 100) <= 15 then
    c_w, c_d = another_warehouse(w), uniform(1, DISTRICTS)
  end
  con:query("begin")
  run("update warehouse set w_ytd = w_ytd + %.2f where w_id = %d", amount, w)
  run("update district set d_ytd = d_ytd + %.2f where d_w_id = %d and d_id = %d", amount, w, d)
  local c = some_customer(c_w, c_d)
  local credit = ask("select c_credit from customer where c_w_id = %d and c_d_id = %d and c_id = %d for update",
    c_w, c_d, c)
  run("update customer set c_balance = c_balance - %.2f, c_ytd_payment = c_ytd_payment + %.2f, " ..
    "c_payment_cnt = c_payment_cnt + 1 where c_w_id = %d and c_d_id = %d and c_id = %d", amount, amount, c_w, c_d, c)
  if credit == "BC" then
    run("update customer set c_data = substr(concat('%d %d %d %d %d %.2f', c_data), 1, 500) " ..
      "where c_w_id = %d and c_d_id = %d and c_id = %d", c, c_d, c_w, d, w, amount, c_w, c_d, c)
  end
  run("insert into history values (%d,%d,%d,%d,%d,now(),%.2f,'%s')",
    c, c_d, c_w, d, w, amount, letters(12, 24))
  con:query("commit")
end

local function order_status()
  local w, d = uniform(1, sysbench.opt.warehouses), uniform(1, DISTRICTS)
  con:query("begin")
  local c = some_customer(w, d)
  ask("select c_balance from customer where c_w_id = %d and c_d_id = %d and c_id = %d", w, d, c)
  local o = ask("select o_id from orders where o_w_id = %d and o_d_id = %d and o_c_id = %d " ..
    "order by o_id desc limit 1", w, d, c)
  if o ~= nil then
    run("select * from order_line where ol_w_id = %d and ol_d_id = %d and ol_o_id = %d", w, d, tonumber(o))
  end
  con:query("commit")
end

local function deliver(w, d, carrier)
  local o = ask("select no_o_id from new_order where no_w_id = %d and no_d_id = %d " ..
    "order by no_o_id limit 1 for update", w, d)
  if o == nil then
    return
  end
  o = tonumber(o)
  run("delete from new_order where no_w_id = %d and no_d_id = %d and no_o_id = %d", w, d, o)
  -- What the transaction has changed it sees, also where it began before the order was there.
  run("update orders set o_carrier_id = %d where o_w_id = %d and o_d_id = %d and o_id = %d", carrier, w, d, o)
  local c = ask("select o_c_id from orders where o_w_id = %d and o_d_id = %d and o_id = %d", w, d, o)
  local lines = string.format("ol_w_id = %d and ol_d_id = %d and ol_o_id = %d", w, d, o)
  run("update order_line set ol_delivery_d = now() where %s", lines)
  local sum = ask("select sum(ol_amount) from order_line where %s", lines)
  run("update customer set c_balance = c_balance + %s, c_delivery_cnt = c_delivery_cnt + 1 " ..
    "where c_w_id = %d and c_d_id = %d and c_id = %d", sum, w, d, tonumber(c))
end

local function delivery()
  local w, carrier = uniform(1, sysbench.opt.warehouses), uniform(1, 10)
  con:query("begin")
  for d = 1, DISTRICTS do
    deliver(w, d, carrier)
  end
  con:query("commit")
end

local function stock_level()
  local w, d, threshold = uniform(1, sysbench.opt.warehouses), uniform(1, DISTRICTS), uniform(10, 20)
  con:query("begin")
  local o = tonumber((ask("select d_next_o_id from district where d_w_id = %d and d_id = %d", w, d)))
  run("select count(distinct s_i_id) from order_line join stock on s_w_id = ol_w_id and s_i_id = ol_i_id " ..
    "where ol_w_id = %d and ol_d_id = %d and ol_o_id < %d and ol_o_id >= %d and s_quantity < %d",
    w, d, o, o - 20, threshold)
  con:query("commit")
end

function event()
  local chosen = uniform(1, 100)
  if chosen <= 45 then
    new_order()
  elseif chosen <= 88 then
    payment()
  elseif chosen <= 92 then
    order_status()
  elseif chosen <= 96 then
    delivery()
  else
    stock_level()
  end
end
