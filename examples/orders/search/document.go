package search

import (
	"strconv"
	"time"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/analysis/analyzer/custom"
	"github.com/blevesearch/bleve/v2/analysis/analyzer/keyword"
	"github.com/blevesearch/bleve/v2/analysis/token/lowercase"
	"github.com/blevesearch/bleve/v2/analysis/token/unicodenorm"
	"github.com/blevesearch/bleve/v2/analysis/tokenizer/unicode"
	"github.com/blevesearch/bleve/v2/mapping"

	"github.com/postrider/postrider/examples/orders/event"
)

// document is an order as it is indexed. An amount is text, because Bleve's
// numbers are floating point and cents of 64 bits are not.
type document struct {
	OrderID   string `json:"orderId"`
	Customer  string `json:"customerId"`
	Words     string `json:"words"` // of the customer's id
	Amount    string `json:"amountCents"`
	CreatedAt string `json:"createdAt"` // event.TimeLayout
}

// The document's fields.
const (
	fieldOrderID   = "orderId"
	fieldCustomer  = "customerId"
	fieldWords     = "words"
	fieldAmount    = "amountCents"
	fieldCreatedAt = "createdAt"
)

func newDocument(e event.OrderCreated) (document, error) {
	t, err := time.Parse(time.RFC3339, e.CreatedAt)
	if err != nil {
		return document{}, err
	}
	return document{
		OrderID:   e.OrderID,
		Customer:  e.CustomerID,
		Words:     e.CustomerID,
		Amount:    strconv.FormatInt(e.AmountCents, 10),
		CreatedAt: t.UTC().Format(event.TimeLayout),
	}, nil
}

// words is the analyzer of fieldWords: words of any language, in any case, in
// any of the forms in which Unicode writes the same letters.
const words = "words"

func newMapping() (mapping.IndexMapping, error) {
	m := bleve.NewIndexMapping()
	const normalize = "normalize"
	if err := m.AddCustomTokenFilter(normalize, map[string]any{"type": unicodenorm.Name, "form": unicodenorm.NFKC}); err != nil {
		return nil, err
	}
	err := m.AddCustomAnalyzer(words, map[string]any{
		"type": custom.Name, "tokenizer": unicode.Name, "token_filters": []string{normalize, lowercase.Name},
	})
	if err != nil {
		return nil, err
	}
	field := func(analyzer string, store, sort bool) *mapping.FieldMapping {
		f := bleve.NewTextFieldMapping()
		f.Analyzer, f.Store, f.DocValues = analyzer, store, sort
		f.IncludeTermVectors, f.IncludeInAll = false, false
		return f
	}
	order := bleve.NewDocumentStaticMapping()
	order.AddFieldMappingsAt(fieldOrderID, field(keyword.Name, true, false))
	order.AddFieldMappingsAt(fieldCustomer, field(keyword.Name, true, false))
	order.AddFieldMappingsAt(fieldWords, field(words, false, false))
	order.AddFieldMappingsAt(fieldAmount, field(keyword.Name, true, false))
	order.AddFieldMappingsAt(fieldCreatedAt, field(keyword.Name, true, true))
	m.DefaultMapping = order
	return m, nil
}
