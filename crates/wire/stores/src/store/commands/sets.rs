//! Sets.

use std::collections::BTreeSet;

use super::{Call, Fault, Keys, Known, Members, Needs, Value, WRONG_TYPE, known};
use crate::resp::{Protocol, encode};

pub(super) const COMMANDS: [Known; 6] = [
    known("sadd", -3, Keys::First, Needs::Collections, add),
    known("srem", -3, Keys::First, Needs::Collections, remove),
    known("smembers", 2, Keys::First, Needs::Collections, members),
    known("sismember", 3, Keys::First, Needs::Collections, is_member),
    known("smismember", -3, Keys::First, Needs::Collections, are_members),
    known("scard", 2, Keys::First, Needs::Collections, count),
];

fn change<T>(
    call: &mut Call<'_>,
    change: impl FnOnce(&mut Members) -> Result<T, Fault>,
) -> Result<T, Fault> {
    call.overlay.set(call.at(1))?;
    call.overlay.change(call.at(1), Value::Set(Members::new()), |value| match value {
        Value::Set(members) => change(members),
        _ => Err(WRONG_TYPE.into()),
    })
}

fn add(call: &mut Call<'_>) -> Result<(), Fault> {
    let new = call.rest();
    let added = change(call, |members| {
        Ok(new.iter().filter(|member| members.insert((*member).clone())).count())
    })?;
    call.count(added);
    Ok(())
}

fn remove(call: &mut Call<'_>) -> Result<(), Fault> {
    let old = call.rest();
    let gone = match call.overlay.set(call.at(1))? {
        None => 0,
        Some(_) => {
            change(call, |members| Ok(old.iter().filter(|member| members.remove(*member)).count()))?
        }
    };
    call.count(gone);
    Ok(())
}

fn members(call: &mut Call<'_>) -> Result<(), Fault> {
    let none = Members::new();
    let members = call.overlay.set(call.at(1))?.unwrap_or(&none);
    let start = call.out.len();
    encode::array(call.out, members.len());
    if call.protocol == Protocol::Resp3 {
        call.out[start] = b'~'; // a set, written as an array is
    }
    members.iter().for_each(|member| encode::bulk(call.out, member));
    Ok(())
}

fn is_member(call: &mut Call<'_>) -> Result<(), Fault> {
    let members = call.overlay.set(call.at(1))?;
    let is_member = members.is_some_and(|members| members.contains(call.at(2)));
    call.integer(i64::from(is_member));
    Ok(())
}

fn are_members(call: &mut Call<'_>) -> Result<(), Fault> {
    let asked = call.rest();
    let none = Members::new();
    let members = call.overlay.set(call.at(1))?.unwrap_or(&none);
    encode::array(call.out, asked.len());
    for member in asked {
        encode::integer(call.out, i64::from(members.contains(member)));
    }
    Ok(())
}

fn count(call: &mut Call<'_>) -> Result<(), Fault> {
    let count = call.overlay.set(call.at(1))?.map_or(0, BTreeSet::len);
    call.count(count);
    Ok(())
}
