package notification

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/mail"
	"strings"
)

// DefaultDomain is where mails to customers go unless something else is
// configured: a domain that never exists (RFC 2606), so that nobody gets a mail
// by mistake.
const DefaultDomain = "customers.example"

// keptOfName is how many characters of a customer's id are kept in an address;
// 64 are allowed before the @, and the checksum needs some.
const keptOfName = 40

// addressAt is the customer's address at the domain: c1 is c1@domain. An id that
// cannot be used as it is keeps its letters and digits, and gets a part of its
// checksum, so that no two customers share an address.
func addressAt(customerID, domain string) string { return localPart(customerID) + "@" + domain }

func localPart(customerID string) string {
	plain := func(r rune) bool { return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' }
	slug := strings.Join(strings.FieldsFunc(strings.ToLower(customerID), func(r rune) bool { return !plain(r) }), "-")
	if slug == customerID && slug != "" && len(slug) <= keptOfName {
		return slug
	}
	sum := sha256.Sum256([]byte(customerID))
	slug = strings.Trim(slug[:min(len(slug), keptOfName)], "-")
	return strings.TrimPrefix(slug+"."+hex.EncodeToString(sum[:8]), ".")
}

// checkAddress reports why an address cannot be used on the wire as it is.
func checkAddress(address string) error {
	if address == "" {
		return errors.New("there is no address")
	}
	for _, r := range address {
		if r <= ' ' || r > '~' {
			return fmt.Errorf("the address %q has characters that are not visible ASCII", address)
		}
	}
	parsed, err := mail.ParseAddress(address)
	if err != nil || parsed.Address != address {
		return fmt.Errorf("%q is not an address", address)
	}
	return nil
}
