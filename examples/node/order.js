// An order and its message, in one transaction of PostgreSQL: afterwards both are
// there, or neither. A relay publishes what is there.
//
//   psql "$DATABASE_URL" -c 'CREATE TABLE orders (id text PRIMARY KEY, customer text NOT NULL, amount_cents bigint NOT NULL)'
//   npm ci && node order.js 4711 c1 4999
//
// Its role needs INSERT on the table and to be granted postrider_writer.
import pg from 'pg';

// placeOrder returns the message's id.
async function placeOrder(client, order) {
  await client.query('BEGIN');
  try {
    await client.query('INSERT INTO orders (id, customer, amount_cents) VALUES ($1, $2, $3)', [order.id, order.customer, order.amountCents]);
    const { rows } = await client.query(
      `SELECT postrider.enqueue(topic => 'orders', key => $1, type => 'order.created', payload => $2, headers => $3) AS id`,
      [order.id, Buffer.from(JSON.stringify(order)), JSON.stringify({ source: 'shop' })],
    );
    await client.query('COMMIT');
    return rows[0].id;
  } catch (err) {
    await client.query('ROLLBACK');
    throw err;
  }
}

const [id, customer, cents] = process.argv.slice(2);
const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
try {
  await client.connect();
  console.log(await placeOrder(client, { id, customer, amountCents: Number(cents) }));
} catch (err) {
  console.error(`order ${id} was not placed: ${err.message}`);
  process.exitCode = 1;
} finally {
  await client.end();
}
