package event

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/outbox"
)

const golden = `{"orderId":"0198f6a2-7c1e-7d7c-9a52-3f2b8a1d4e5f","customerId":"c1","amountCents":4999,"createdAt":"2026-07-30T20:27:10.628Z"}`

var order = OrderCreated{
	OrderID:     "0198f6a2-7c1e-7d7c-9a52-3f2b8a1d4e5f",
	CustomerID:  "c1",
	AmountCents: 4999,
	CreatedAt:   "2026-07-30T20:27:10.628Z",
}

func TestMessageIsGolden(t *testing.T) {
	m, err := order.Message()
	if err != nil {
		t.Fatal(err)
	}
	if string(m.Payload) != golden {
		t.Errorf("payload\n got %s\nwant %s", m.Payload, golden)
	}
	if m.Topic != "orders" || m.Key != order.OrderID || m.Type != "order.created" {
		t.Errorf("topic %q, key %q, type %q", m.Topic, m.Key, m.Type)
	}
}

func TestDecodeReadsWhatMessageWrote(t *testing.T) {
	got, err := DecodeOrderCreated([]byte(golden))
	if err != nil || got != order {
		t.Fatalf("got %+v, %v; want %+v", got, err, order)
	}
	extended := strings.Replace(golden, `{`, `{"currency":"EUR",`, 1)
	if got, err := DecodeOrderCreated([]byte(extended)); err != nil || got != order {
		t.Fatalf("an added field: got %+v, %v", got, err)
	}
}

func TestEqualOrdersHaveEqualIDs(t *testing.T) {
	for _, id := range []string{strings.ToUpper(order.OrderID), "{" + order.OrderID + "}", "urn:uuid:" + order.OrderID, strings.ReplaceAll(order.OrderID, "-", "")} {
		if got, err := DecodeOrderCreated([]byte(strings.Replace(golden, order.OrderID, id, 1))); err != nil || got != order {
			t.Errorf("%s: got %+v, %v", id, got, err)
		}
	}
}

func TestRead(t *testing.T) {
	m, err := order.Message()
	if err != nil {
		t.Fatal(err)
	}
	if got, ok, err := Read(m); got != order || !ok || err != nil {
		t.Errorf("an order: %+v, %v, %v", got, ok, err)
	}
	m.Type = ""
	if got, ok, err := Read(m); got != order || !ok || err != nil {
		t.Errorf("an order without a type: %+v, %v, %v", got, ok, err)
	}
	m.Payload = []byte("{")
	if _, ok, err := Read(m); ok || err == nil || outbox.ClassOf(err) != outbox.ClassPermanent {
		t.Errorf("no order: %v, %v", ok, err)
	}
	m.Type = "order.cancelled"
	if _, ok, err := Read(m); ok || err != nil {
		t.Errorf("another type: %v, %v", ok, err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, c := range map[string]struct{ payload, want string }{
		"nothing":           {"", "unexpected"},
		"text":              {"hello", "invalid character"},
		"snake case":        {strings.Replace(golden, "customerId", "customer_id", 1), "customerId is missing"},
		"no order id":       {strings.Replace(golden, order.OrderID, "", 1), "orderId"},
		"amount is text":    {strings.Replace(golden, "4999", `"4999"`, 1), "amountCents"},
		"fractional":        {strings.Replace(golden, "4999", "49.99", 1), "amountCents"},
		"negative":          {strings.Replace(golden, "4999", "-1", 1), "not positive"},
		"no time":           {strings.Replace(golden, "2026", "", 1), "createdAt"},
		"all of it at once": {"{}", "createdAt"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := DecodeOrderCreated([]byte(c.payload))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}
