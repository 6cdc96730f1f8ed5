"""SQL texts and what they are called."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_once_more.testing.instruments.statements import effect_of


def what(sql):
    effect = effect_of(sql)
    return effect and (effect.kind, effect.what)


@pytest.mark.parametrize(
    ("sql", "label"),
    [
        ("INSERT INTO orders (id) VALUES (1)", "INSERT INTO orders"),
        ("insert into orders values (1) returning id", "INSERT INTO orders"),
        ("INSERT INTO orders VALUES (1) ON CONFLICT DO UPDATE SET n = 2", "INSERT INTO orders"),
        ("INSERT INTO orders VALUES (1) ON DUPLICATE KEY UPDATE n = 2", "INSERT INTO orders"),
        ("INSERT OR REPLACE INTO orders VALUES (1)", "INSERT INTO orders"),
        ("INSERT OR IGNORE INTO orders VALUES (1)", "INSERT INTO orders"),
        ("INSERT IGNORE orders VALUES (1)", "INSERT INTO orders"),
        ("INSERT LOW_PRIORITY IGNORE INTO orders VALUES (1)", "INSERT INTO orders"),
        ("INSERT INTO orders(id)VALUES(1)", "INSERT INTO orders"),
        ("INSERT INTO orders SELECT * FROM carts", "INSERT INTO orders"),
        ("REPLACE INTO orders VALUES (1)", "REPLACE INTO orders"),
        ("UPDATE orders SET n = n + 1", "UPDATE orders"),
        ("update only orders set n = 1", "UPDATE orders"),
        ("UPDATE OR FAIL orders SET n = 1", "UPDATE orders"),
        ("DELETE FROM orders WHERE id = 1", "DELETE FROM orders"),
        ("DELETE FROM ONLY orders", "DELETE FROM orders"),
        ("DELETE o FROM orders o JOIN carts c", "DELETE FROM o"),
        ("MERGE INTO orders USING carts ON 1 = 1 WHEN MATCHED THEN DELETE", "MERGE INTO orders"),
        ("TRUNCATE TABLE orders", "TRUNCATE orders"),
        ("TRUNCATE orders, carts", "TRUNCATE orders"),
    ],
)
def test_a_statement_that_changes_rows_is_called_by_its_verb_and_table(sql, label):
    assert what(sql) == ("sql", label)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("orders", "orders"),
        ("Orders", "Orders"),
        ('"orders"', "orders"),
        ("`orders`", "orders"),
        ("[orders]", "orders"),
        ('"my orders"', "my orders"),
        ('"shop"."orders"', "shop.orders"),
        ("shop . orders", "shop.orders"),
        ("`shop`.orders", "shop.orders"),
        ("a.b.c", "a.b.c"),
        ('"only"', "only"),
        ("bestellungen_ä", "bestellungen_ä"),
        ("orders$2024", "orders$2024"),
    ],
)
def test_a_table_keeps_its_name_and_schema_without_quotes(name, shown):
    assert what(f"INSERT INTO {name} (id) VALUES (1)") == ("sql", f"INSERT INTO {shown}")
    assert what(f"UPDATE {name} SET id = 1") == ("sql", f"UPDATE {shown}")
    assert what(f"DELETE FROM {name}") == ("sql", f"DELETE FROM {shown}")


@pytest.mark.parametrize(
    "before",
    ["  \n\t", "-- DELETE FROM carts\n", "/* DELETE FROM carts */", "/* a /* nested */ one */ ", "# MySQL's\n", "(", " ( ( ", ";",
     "/* one */ -- two\n /**/", "SELECT 1; ", "SET x = ';'; "],
)  # fmt: skip
def test_what_stands_before_a_statement_does_not_matter(before):
    assert what(f"{before}UPDATE orders SET n = 1") == ("sql", "UPDATE orders")


def test_a_comment_inside_a_statement_does_not_matter():
    assert what("INSERT /*+ hint */ INTO -- here\n orders VALUES (1)") == ("sql", "INSERT INTO orders")


@pytest.mark.parametrize(
    ("sql", "label"),
    [
        ("WITH a AS (SELECT 1) INSERT INTO orders SELECT * FROM a", "INSERT INTO orders"),
        ("with a as (select 1), b (x, y) as (select 2) update orders set n = 1", "UPDATE orders"),
        ("WITH RECURSIVE a(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM a) DELETE FROM orders", "DELETE FROM orders"),
        ("WITH gone AS (DELETE FROM orders RETURNING *) SELECT * FROM gone", "DELETE FROM orders"),
        ("WITH gone AS NOT MATERIALIZED (DELETE FROM orders RETURNING *) INSERT INTO old SELECT * FROM gone", "INSERT INTO old"),
        ("WITH a AS (SELECT ')' AS x), b AS (UPDATE orders SET n = 1) SELECT 1", "UPDATE orders"),
        ("WITH update AS (SELECT 1), delete AS (SELECT 2) INSERT INTO orders SELECT 1", "INSERT INTO orders"),
    ],
)
def test_a_common_table_expression_is_called_by_what_it_writes(sql, label):
    assert what(sql) == ("sql", label)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM orders",
        "(SELECT 1) UNION (SELECT 2)",
        "SELECT * FROM orders FOR UPDATE",
        "SELECT 'DELETE FROM orders'",
        "SELECT 1; -- DELETE FROM orders",
        "SELECT '; DELETE FROM orders'",
        "SELECT $$; DELETE FROM orders$$",
        "SELECT $a$; DELETE FROM orders $$ $a$",
        'SELECT "; DELETE FROM orders"',
        "SELECT replace(a, 'x', 'y') FROM orders",
        "WITH a AS (SELECT replace(x, 'y', 'z') FROM orders) SELECT * FROM a",
        "WITH update AS (SELECT 1) SELECT * FROM update",
        "WITH a AS (SELECT 1) SELECT * FROM orders FOR UPDATE",
        "VALUES (1)",
        "PRAGMA foreign_keys = ON",
        "SET search_path = shop",
        "SHOW TABLES",
        "EXPLAIN SELECT 1",
        "BEGIN",
        "BEGIN IMMEDIATE",
        "START TRANSACTION",
        "SAVEPOINT a",
        "RELEASE SAVEPOINT a",
        "ROLLBACK TO SAVEPOINT a",
        "ROLLBACK TO a",
        "ROLLBACK TRANSACTION TO SAVEPOINT a",
        "LOCK TABLE orders",
        "COPY orders (id) TO STDOUT",
        "COPY (SELECT 1) TO STDOUT",
        "PREPARE a AS INSERT INTO orders VALUES (1)",
        "XA START 'a'",
        "XA END 'a'",
        "",
        " ; ; ",
        "-- nothing",
        "???",
    ],
)
def test_what_writes_nothing_is_no_effect(sql):
    assert effect_of(sql) is None


@pytest.mark.parametrize(
    ("sql", "effect"),
    [
        ("COMMIT", ("commit", "COMMIT")),
        ("commit work;", ("commit", "COMMIT")),
        ("END TRANSACTION", ("commit", "COMMIT")),
        ("COMMIT PREPARED 'tx_42'", ("commit", "COMMIT PREPARED")),
        ("XA COMMIT 'tx_42'", ("commit", "XA COMMIT")),
        ("ROLLBACK", ("rollback", "ROLLBACK")),
        ("ABORT", ("rollback", "ROLLBACK")),
        ("ROLLBACK PREPARED 'tx_42'", ("rollback", "ROLLBACK PREPARED")),
        ("XA ROLLBACK 'tx_42'", ("rollback", "XA ROLLBACK")),
        ("PREPARE TRANSACTION 'tx_42'", ("sql", "PREPARE TRANSACTION")),
        ("XA PREPARE 'tx_42'", ("sql", "XA PREPARE")),
    ],
)
def test_the_end_of_a_transaction_is_told_from_a_statement(sql, effect):
    assert what(sql) == effect


@pytest.mark.parametrize(
    ("sql", "label"),
    [
        ("CREATE TABLE orders (id integer)", "CREATE TABLE orders"),
        ("create temp table if not exists shop.orders (id integer)", "CREATE TABLE shop.orders"),
        ("CREATE UNIQUE INDEX CONCURRENTLY one ON orders (id)", "CREATE INDEX one"),
        ("CREATE OR REPLACE VIEW v AS SELECT 1", "CREATE VIEW v"),
        ("DROP TABLE IF EXISTS orders", "DROP TABLE orders"),
        ("ALTER TABLE ONLY orders ADD COLUMN n integer", "ALTER TABLE orders"),
        ("COPY orders (id) FROM STDIN", "COPY orders"),
        ("CALL shop.pay(42)", "CALL shop.pay"),
        ("EXECUTE a(42)", "EXECUTE a"),
        ("DO $$ BEGIN DELETE FROM orders; END $$", "DO"),
        ("GRANT SELECT ON orders TO somebody", "GRANT SELECT ON"),
        ("NOTIFY orders, '42'", "NOTIFY orders"),
        ("LOAD DATA INFILE '42.csv' INTO TABLE orders", "LOAD DATA INFILE"),
    ],
)
def test_an_unusual_statement_is_called_by_its_first_words_and_no_value(sql, label):
    assert what(sql) == ("sql", label)


@pytest.mark.parametrize(
    "sql", ["INSERT", "INSERT INTO", "UPDATE 42", "DELETE FROM (", "CREATE", "WITH", "WITH a AS (", "ROLLBACK TO"]
)
def test_half_a_statement_is_left_to_the_database_to_refuse(sql):
    effect_of(sql)


@given(st.text(alphabet="'\"`[]()$;-/*#., \nabWITHINSERTab1"))
def test_no_text_breaks_the_reader(sql):
    effect_of(sql)


def test_a_long_statement_is_read_no_further_than_its_table():
    assert what("INSERT INTO orders VALUES " + "(1), " * 1_000_000) == ("sql", "INSERT INTO orders")
